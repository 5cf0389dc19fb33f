"""Services of a broker: tasks that work beside its verbs, each started and stopped with it."""
