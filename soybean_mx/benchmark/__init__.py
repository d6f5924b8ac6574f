"""Training steps of different programs, timed side by side in processes of their own.

``contenders`` (what runs where, and what its figures come to) starts ``contender`` (one process), which trains a
``model_task`` by a ``training_step``.
"""
