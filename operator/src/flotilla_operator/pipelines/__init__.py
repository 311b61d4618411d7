"""`Pipeline` resources: Spark applications on topics.

`spec` reads a resource, `driver_pod` has the driver pod and the claim of the checkpoint, `schedule` computes when a run
is due, `states` is the state machine of runs and attempts, `progress` reads the reports of drivers, `phase` builds the
phase and the condition Ready, and `plan` combines them.
"""
