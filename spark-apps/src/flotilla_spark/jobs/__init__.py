"""The Spark part of each application. `start(session, options)` returns a `Job` for `runner`."""
