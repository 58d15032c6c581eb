"""moto's server, one request at a time: moto checks whether a key exists and then writes it, which S3 does in one step.

Takes moto.server's arguments.
"""
import sys
import threading

import moto.server

turn = threading.Lock()
run_simple = moto.server.run_simple


def run_in_turn(host, port, application, **options):
    def answer(environ, start_response):
        with turn:
            return list(application(environ, start_response))

    run_simple(host, port, answer, **options)


moto.server.run_simple = run_in_turn
moto.server.main(sys.argv[1:])
