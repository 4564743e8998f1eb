"""The checked-in gRPC stubs are what `make proto` generates."""

from pathlib import Path

import pytest
from grpc_tools import protoc

ROOT = Path(__file__).parents[2]
FOLDER = Path("nightjar_api/engine/v1")


@pytest.mark.parametrize("stub", ["engine_pb2.py", "engine_pb2.pyi", "engine_pb2_grpc.py"])
def test_generated_stubs_reproduce_byte_for_byte(stub, tmp_path):
    arguments = [
        "protoc",
        f"-I{ROOT / 'api'}",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
        f"--grpc_python_out={tmp_path}",
        str(ROOT / "api" / FOLDER / "engine.proto"),
    ]
    assert protoc.main(arguments) == 0
    assert (tmp_path / FOLDER / stub).read_bytes() == (ROOT / "api" / FOLDER / stub).read_bytes()
