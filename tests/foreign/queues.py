"""Queues of somebody else's, with five messages each. Names are the arguments."""

import os
import sys

import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
channel = connection.channel()
channel.confirm_delivery()
for name in sys.argv[1:]:
    channel.queue_declare(name, durable=True)
    for number in range(5):
        channel.basic_publish("", name, str(number), pika.BasicProperties(delivery_mode=2))
connection.close()
