"""The services behind every interface: the queue, the dispatcher, the rescuer, reports, runs, flows.

How they hang together: a write to the store returns `Changes`; `Consequences.follow` carries them to
whoever must know (the queue, the fleet, the dispatcher, whoever watches). Nothing here talks to a socket:
a worker's session is a `Link`, which the gateway provides.
"""
