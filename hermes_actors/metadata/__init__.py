"""Metadata: a log of commands, which every node folds to the same groups, topics and
subscriptions.
"""
