"""`Pipeline` resources: Spark applications on topics.

What they want (`wish`), the pod that drives one (`driver`) and the claim for its checkpoint (`claim`); when it is due
(`schedule`); what is done about it (`plan`, which takes one step of a machine of states at a time: `states`); what is
heard from drivers (`progress`), seen of the executors that these make (`executors`), and shown (`looks`).
"""
