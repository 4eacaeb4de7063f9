# Outlives the process that started it, and then cleans up behind it.
#
# Standard input is a pipe whose other end only that process holds, so end of file means that it is gone, however it
# went: exit, panic, kill -9. Until then each line registers something:
#
#   +pid N   a process group to kill        -pid N   it has ended by itself
#   +dir P   a folder to remove
#
# Signals are ignored: Ctrl-C must not end the one process that cleans up after Ctrl-C.
trap '' INT TERM HUP QUIT

pids=
while IFS= read -r line; do
  value=${line#* }
  case $line in
    '+pid '*) pids="$pids $value" ;;
    '-pid '*)
      kept=
      for pid in $pids; do
        [ "$pid" = "$value" ] || kept="$kept $pid"
      done
      pids=$kept
      ;;
    '+dir '*) set -- "$@" "$value" ;;
  esac
done

for pid in $pids; do
  kill -s KILL -- "-$pid" 2>/dev/null
done

# A killed process may still be finishing a write, so removing can fail the first time.
for dir in "$@"; do
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    rm -rf -- "$dir" 2>/dev/null
    [ -e "$dir" ] || break
    sleep 0.2
  done
done
