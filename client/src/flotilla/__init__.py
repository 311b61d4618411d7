"""Flotilla: a partitioned, replicated log queue.

This package holds what every part of the system shares. Today that is `flotilla.records`, the one
binary shape that messages travel in.
"""
