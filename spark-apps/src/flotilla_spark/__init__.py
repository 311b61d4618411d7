"""Spark applications: `archive`, `log_stats`, `route` and `load`.

`flotilla-spark NAME`, `python -m flotilla_spark.NAME` and `spark-submit …/flotilla_spark/NAME.py` are equivalent.

Reading order: the module with an application's name is its command line, and `arguments` has their common options.
These do not import Spark, so that help and validation are fast. `launcher` checks that topics exist, then starts the
application's module in `jobs` with `runner`. `parsing` converts lines to columns. `formats`, `table` and `failures` are
pure. `driver`, `executor` and `progress` run in pods of Pipelines.
"""
