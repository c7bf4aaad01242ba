"""a2a-sdk's gRPC server, on PORT + 1000, in front of the executor of a2a_sdk_server, which speaks JSON-RPC on PORT."""
import asyncio
import sys

import grpc
import uvicorn
from a2a.server.request_handlers import GrpcHandler
from a2a.types.a2a_pb2_grpc import add_A2AServiceServicer_to_server
from a2a_sdk_server import app, handler


async def main(port):
    server = grpc.aio.server()
    add_A2AServiceServicer_to_server(GrpcHandler(handler), server)
    server.add_insecure_port(f"127.0.0.1:{port + 1000}")
    await server.start()
    await uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", access_log=False, loop="asyncio")).serve()


asyncio.run(main(int(sys.argv[1])))
