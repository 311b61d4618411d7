"""A partition: what its entries mean. `producers.py` tells a retry from a new batch."""
