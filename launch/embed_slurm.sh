#!/usr/bin/env bash
# jdistill.embed as a Slurm array from 0 to n - 1: task i makes every n-th file.
#   sbatch --array=0-15 launch/embed_slurm.sh --model MODEL --text SOURCE --out /shared/vectors [--role query …]
# Then one command of the same flags without an array makes what a failed task left, and says that all files are there:
#   python -m jdistill.embed --model MODEL --text SOURCE --out /shared/vectors [--index Flat]
# Some tasks alone are run again as SHARDS=16 sbatch --array=3,7 launch/embed_slurm.sh … A requeued task goes on where it stopped.
# --text and --out must lie on a file system that all nodes share.
#SBATCH --job-name=jdistill-embed
#SBATCH --array=0-7
#SBATCH --ntasks=1
#SBATCH --gpus-per-task=1
#SBATCH --cpus-per-task=8
#SBATCH --requeue
#SBATCH --output=%x-%A-%a.log
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:-.}"
exec "${PYTHON:-.venv/bin/python}" -m jdistill.embed "$@" \
  --shard "$SLURM_ARRAY_TASK_ID/${SHARDS:-$((SLURM_ARRAY_TASK_MAX + 1))}"
