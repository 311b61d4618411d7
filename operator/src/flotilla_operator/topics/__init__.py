"""`Topic` resources.

`spec` reads a resource, `conditions` and `status` build its status, `plan` combines them, and `mirrors` creates
resources for topics that were created over HTTP.
"""
