#!/bin/sh
# Makes `venv` and `gen`, in this folder. Then: PYTHONPATH=gen venv/bin/python client.py …
set -eu
root=${ROOT:-../../..}
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check --requirement requirements.txt
"${BUF:-buf}" build "$root" --path "$root/proto/switchyard" --output image.binpb
mkdir -p gen
# shellcheck disable=SC2046 # one word a file
venv/bin/python -m grpc_tools.protoc --descriptor_set_in=image.binpb \
  --python_out=gen --pyi_out=gen --grpc_python_out=gen $(cd "$root/proto" && echo switchyard/v1/*.proto)
