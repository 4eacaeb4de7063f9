#!/bin/sh
# Makes `client`, in this folder: the code from the protos, then the program.
set -eu
root=${ROOT:-../../..}
"${BUF:-buf}" generate "$root" --path "$root/proto/switchyard"
go build -trimpath -buildvcs=false -o client .
