#!/bin/sh
# Makes `out/client.js`, in this folder. Then: node out/client.js …
set -eu
root=${ROOT:-../../..}
npm ci --ignore-scripts --no-audit --no-fund
"${BUF:-buf}" generate "$root" --path "$root/proto/switchyard"
node_modules/.bin/tsc
