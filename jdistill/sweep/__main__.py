"""The command python -m jdistill.sweep: many runs of one config with some keys varied, compared by their dev scores.

python -m jdistill.sweep --config configs/distilface.py --workdir runs/sweep --grid temperature=0.01,0.05,0.1 --grid seed=0,1,2 \\
    --config.dev_pairs=sts-dev-clean.csv --config.max_steps=500 …

--grid KEY=A,B,C lists values, as does a JSON list where one has a comma; KEY=LOW..HIGH is a range for the samplers
random and tpe, by ratio where both ends are positive floats. KEY is a key of the config, or the end of one. A trial
is a folder of its own that resumes; the same command goes on where a sweep was killed. Trials share the tokenised
text, the teacher's answers and the compiled step. Writes WORKDIR/sweep.html, its pictures, and WORKDIR/sweep.json.
"""

from jdistill.core.memory import keep_freed_memory

keep_freed_memory()  # before numpy and JAX start threads

from absl import flags  # noqa: E402

from jdistill.config.flags import run_command  # noqa: E402
from jdistill.sweep import command  # noqa: E402

flags.adopt_module_key_flags(command)  # so that --help shows them
run_command(command.sweep_command)
