"""A producer as its users write it: jobs into RabbitMQ through the client, the layout compared through Redis.

Reads lines of `channel chat text id` from standard input; says how many were confirmed.
"""

import os
import sys

from shardvisor import Producer

confirmed = 0
with Producer(os.environ["AMQP_URL"], registry_url=os.environ["REDIS_URL"]) as producer:
    for line in sys.stdin:
        channel, chat, text, job = line.split()
        producer.enqueue_send(channel, chat, text, job_id=job)
        confirmed += 1
print(confirmed)
