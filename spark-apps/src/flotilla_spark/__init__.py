"""Spark applications on topics: `archive`, `log_stats`, `route` and `load`.

`flotilla-spark NAME`, `python -m flotilla_spark.NAME` and `spark-submit …/flotilla_spark/NAME.py` are the same.

Reading order: a module with an application's name is its command line, and `arguments` what these share. They do not
load Spark, so that help and refusals are quick. `launching` asks the system whether topics are there, and then starts
the application's part in `jobs`, under the care of `running`. `parsing` turns lines into columns. `formats`, `drawing`
and `explaining` are pure.
"""
