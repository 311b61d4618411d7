"""What applications do in Spark. `start(session, options)` of each gives something for `running` to wait for."""
