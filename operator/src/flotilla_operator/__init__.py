"""The operator of Flotilla: it has `Topic` and `Broker` resources become what they say, and tells how they are.

Reading order: `world` is what managers know; `topics.plan` and `brokers.plan` are pure functions that decide, from a
resource and what is observed, what to do and what to show; `acting` does it; `turns` calls all of that, again and
again; `handlers` is where kopf wakes it up.

Nothing here is needed for records to flow: while the operator is away, brokers and managers go on.
"""
