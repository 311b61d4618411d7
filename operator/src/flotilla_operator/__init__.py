"""The operator of Flotilla: it reconciles `Topic`, `Broker` and `Pipeline` resources.

Reading order: `reconciler` is the loop: observe, plan, execute. `observation` reads resources and `cluster_state`, the
state of the managers. `planning` calls the pure functions `topics.plan` and `brokers.plan`; `pipeline_planner` calls
`pipelines.plan`. All of them return `plans`. `execution` writes statuses and runs the actions with `actions`.
`handlers` connects the watches of kopf.

The operator is not in the data path: while it is unavailable, brokers and managers continue.
"""
