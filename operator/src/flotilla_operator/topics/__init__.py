"""`Topic` resources.

What they want (`wish`), what is done about it (`plan`), what they show (`status`), and those that tell of topics that
were made over HTTP (`mirrors`).
"""
