"""What a Broker tells of itself, one file for each condition, in the order in which they are shown. Pure."""
