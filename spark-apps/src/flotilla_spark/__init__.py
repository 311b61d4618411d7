"""Spark applications on topics: `archive`, `log_stats`, `route` and `load`. Each is `python -m flotilla_spark.NAME`.

`parsing` turns lines into columns, `arguments` is what they have in common on the command line.
"""
