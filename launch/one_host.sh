#!/usr/bin/env bash
# One machine, all of its GPUs (or CPU cores): a single process drives every device, so there is nothing to launch but the command.
#   bash launch/one_host.sh --config configs/simtde.py --workdir runs/simtde [--config.key=value …]
# CUDA_VISIBLE_DEVICES chooses among the GPUs. The first time on a GPU: pip install -e '.[gpu]'.
#
# PROCESSES=2 runs that many processes on this machine instead, joined as those of several machines are: how the two-process case is
# tried and tested without a cluster. They share the GPUs out, those of CUDA_VISIBLE_DEVICES or all.
set -euo pipefail
python="${PYTHON:-python}"
processes="${PROCESSES:-1}"
if [ "$processes" = 1 ]; then
  exec "$python" -m jdistill.main "$@"
fi
gpus=()
if [ "${CUDA_VISIBLE_DEVICES--}" != "-" ]; then  # set; empty and -1 choose none
  IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES/#-1*/}"
elif command -v nvidia-smi > /dev/null; then
  # What it says where it finds none is no GPU.
  mapfile -t gpus < <(nvidia-smi --query-gpu=index --format=csv,noheader 2> /dev/null | grep -xE '[0-9]+' || true)
fi
if [ $((${#gpus[@]} % processes)) != 0 ]; then
  echo "error: PROCESSES=$processes: ${#gpus[@]} GPUs cannot be shared out evenly; choose among them by CUDA_VISIBLE_DEVICES" >&2
  exit 2
fi
share=$((${#gpus[@]} / processes))
port="${PORT:-$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')}"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true' TERM INT
for ((i = 0; i < processes; i++)); do
  own=("${gpus[@]:$((i * share)):$share}")
  (
    if [ "$share" != 0 ]; then
      CUDA_VISIBLE_DEVICES="$(IFS=,; echo "${own[*]}")"
      export CUDA_VISIBLE_DEVICES
    fi
    exec "$python" -m jdistill.main "$@" --coordinator="127.0.0.1:$port" --num_processes="$processes" --process_id="$i"
  ) &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do
  of_one=0
  wait "$pid" || of_one=$?
  # A signal ends wait before the process, which saves and exports first.
  while kill -0 "$pid" 2>/dev/null; do of_one=0 && { wait "$pid" || of_one=$?; }; done
  [ "$of_one" = 0 ] || status=$of_one
done
exit "$status"
