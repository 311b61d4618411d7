"""`Broker` resources: a set of brokers with one spec.

`spec` reads it, `children` are the resources that it becomes, `rollout` and `scaling` decide when a pod may go,
`members` and `status` tell how brokers are, `plan` puts it together.
"""
