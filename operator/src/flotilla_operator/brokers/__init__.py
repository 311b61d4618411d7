"""`Broker` resources: sets of identical brokers.

`spec` reads a resource, `addresses` has the host names of brokers, `children` has the objects to create, `instances`
combines pods and registered brokers, `rollout` and `scaling` plan the replacement and removal of pods, `conditions` and
`status` build the status, and `plan` combines them.
"""
