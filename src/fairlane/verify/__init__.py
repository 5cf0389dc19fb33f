"""`fairlane verify`: random traffic and faults against real brokers, and checks of every promise afterwards.

Clients in processes of their own write a history. The nemesis breaks brokers, connections and the store meanwhile. When
all faults have ended and every queue is drained, the checks compare the history with the log, with SQL and with the
API.
"""
