#!/usr/bin/env bash
# From nothing to an answer: installs, distils all-MiniLM-L6-v2 on the sentences of Python's own documentation into a student of 41 % of its size,
# exports it, compares it with its teacher, and asks it a question. A few minutes on two CPU cores; nothing is downloaded but packages.
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh" ""  # else it would read this script's arguments as extras
workdir="${WORKDIR:-runs/quickstart}"
arguments=()
while (($#)); do  # the search and the last lines are of the same folder as the training
  case "$1" in
    --workdir=* | -workdir=*) workdir="${1#*=}" ;;
    --workdir | -workdir) workdir="${2:?a folder belongs after --workdir}" && shift ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
python -m jdistill.main --config configs/quickstart.py --workdir "$workdir" "${arguments[@]}"
# Ctrl-C is no failure, and --dry_run makes nothing. What a store holds (s3://…) the search finds out by itself.
if [[ "$workdir" != *://* && ! -e "$workdir/results.json" ]]; then
  echo "$workdir has no results yet, and is not searched" >&2
  exit 0
fi
python -m jdistill.search --workdir "$workdir" "how do I copy a directory tree"
echo
echo "report:   $workdir/report.html"
echo "student:  $workdir/export   (sentence_transformers.SentenceTransformer or jdistill.load reads it)"
echo "ask more: .venv/bin/python -m jdistill.search --workdir $workdir \"your question\""
echo "a page that answers in a browser, without a server: docs/site.md says how"
