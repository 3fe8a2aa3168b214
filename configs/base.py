"""Keys that every config has, each explained once. A config file copies this and changes what its method needs.

The type and range of each are in jdistill/config/keys.py, which every run is checked by before anything else.
"""

from ml_collections import ConfigDict

from jdistill.core.errors import UserError


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.method = ""  # which file of jdistill/methods

    # Sources: a path, a hub id, or pkg:import_name/sub/folder inside an installed package.
    # teacher: also vectors:FILE (texts with their embeddings) and st:SOURCE (whatever sentence-transformers loads; torch extra)
    c.teacher = ""  # empty: the start itself
    c.teacher_dtype = "auto"  # in which a teacher of ours answers, kept apart in the cache; auto: as dtype's own auto
    c.teacher_pooling = ""  # in the place of the teacher's own pooler, such as cls; empty: its own
    # Of a teacher st:OWNER/NAME or st:OWNER/NAME@COMMIT the commit whose Python files may run, of st:FOLDER the digest of them; empty: none.
    c.trust_remote_code = ""
    c.start = ""  # where the student's weights start; empty: the teacher itself
    c.pooling = ""  # the student's pooler, a name in jdistill/models/pooling.py; empty: its start's own
    # .txt .csv .tsv .jsonl .parquet, a folder, a URL, a datasets id, python-docs, wordnet, beir:FOLDER; several: PATH@ROLE*WEIGHT,… (docs/data.md)
    c.text = ""  # empty: a vectors: teacher's own texts
    c.text_role = ""  # query or document: of the sources of text that name no role after @; empty: none
    c.text_column = ""  # the column of a table or dataset; may be empty where there is only one of strings
    c.pairs = ""  # rows of query and positive, PATH*WEIGHT,…: further text in these two roles, no labels (own_pairs: the pairs); empty: none
    c.text_pairs = ""  # tables of source and translation, named as text is: both get the teacher's vector of the source
    c.split_sentences = False  # the texts are documents: train on their sentences (the sentences extra)
    c.max_texts = 0  # use the first so many training texts; 0: all
    c.augment = ""  # further texts of each text: wordnet (installed), wordnet:FOLDER, column:NAME (paraphrases) or spans:K (runs of its words)
    c.held_out = 1000  # texts kept from training to measure agreement with the teacher (at most a tenth of them)
    c.max_length = 128  # tokens of a text, for teacher and student, 3 or more; 0: the model's own limit
    c.query_prompt = ""  # put before a search query by the student, which keeps it at export; empty: its start's own
    c.document_prompt = ""  # likewise before a document (triplets: the positives and negatives)
    c.answers_ahead = 0  # texts that the teacher answers at a time, ahead of the steps that read them; 0: all that they read, before the first
    c.cache_dir = ""  # teacher answers and tokens, folder or URL; empty: $XDG_CACHE_HOME/jdistill or ~/.cache/jdistill

    # Evaluation.
    c.senteval = ""  # a SentEval folder; empty: skip
    c.dev_retrieval = ""  # as beir, to develop on: nDCG@10 by index_by, in the dev score as dev_pairs; empty: skip
    c.beir = ""  # a folder of BEIR-layout collections, or a datasets id such as C-MTEB/T2Retrieval; empty: skip
    c.dev_pairs = ""  # scored pairs (of a folder's files the mean), in the dev score beside agreement; not in d2llm or a labelled task
    c.evaluate_teacher = True  # score the teacher on the same sets, for the retention columns
    c.latency_texts = 200  # held-out texts, one at a time, for the latency table; 0: skip

    # Optimisation.
    c.epochs = 1.0  # above 0, where max_steps is 0
    c.max_steps = 0  # 0: by epochs
    c.batch_size = 128  # of all devices together; their number divides it
    c.chunk_size = 0  # rows of a batch whose activations stand in memory at once; without dropout the gradient stays the same; 0: all
    c.optimizer = "adamw"  # adamw, or muon: each step dearer, by as much whatever the batch (docs/performance.md)
    c.learning_rate = 3e-4  # the highest; above 0
    c.block_size = 0  # rows of a Gram or logit matrix at once; 0: all
    c.schedule = "cosine"  # cosine, linear or constant, after the warm-up
    c.warmup = 0.05  # share of the steps, 0 to 1, over which the learning rate rises from 0
    c.weight_decay = 0.01  # of AdamW, and of Muon's matrices; biases and norms do not decay
    c.adam_b1, c.adam_b2 = 0.9, 0.999  # of AdamW's means of the gradient and of its square
    c.adam_eps = 1e-8  # beside the root of the latter
    c.clip_norm = 1.0  # of the whole gradient; 0: no clipping
    c.average = 0.0  # below 1: score and export an average of the parameters over some 1 / (1 - average) steps, as 0.999; 0: the last
    c.shard_frozen = False  # split what is not trained (a teacher inside the step, adapters' base) over the devices
    c.shard_params = False  # split what is trained and its optimiser over the devices; gathered where a step uses it
    # Compute type: float32, bfloat16, float16 (with loss scaling), or auto: bfloat16 where this machine is fast in it. Parameters are float32.
    c.dtype = "auto"
    c.attention = "plain"  # by our own products, or cudnn: on GPUs in bfloat16 or float16, where there is no dropout
    c.seed = 0  # below 2**32

    # Batches: packed, or of a handful of lengths, each compiled once.
    c.packed = True  # several texts stand in a row, with hardly any padding: transformers, on text and triplets
    c.topics = 0  # texts of a batch are of one of so many topics, harder to tell apart (unlabelled text, not packed); 0: as they come
    c.length_buckets = 10  # at most so many widths, chosen for the least padding in this text; a short run gets fewer
    c.prefetch = 2  # batches that a thread makes and puts on the devices ahead of the step; 0: none
    c.steps_per_call = 1  # steps that a call of the compiled program runs: for steps so small that starting them counts
    c.length_multiple = 4  # of which each is a multiple; 8 or more suits GPUs

    # The run.
    c.log_every = 20  # steps between lines of metrics.jsonl
    c.checkpoint_every = 500  # steps between checkpoints, 1 or more, each with a dev score
    c.checkpoint_minutes = 10.0  # without one, after which one is saved that has no dev score; 0: none is
    c.checkpoint = "best"  # that is exported: best, by dev score; last, at the lowest rate; auto: best by dev_retrieval or patience, else last
    c.patience = 0  # stop after so many checkpoints without a better dev score; 0: never
    c.keep_last = 2  # checkpoints, 1 or more; the best is kept too
    c.onnx = True  # add the ONNX graph to the export
    c.index_texts = 20_000  # texts put into the FAISS index that jdistill.search answers from; 0: no index
    c.index = "Flat"  # of jdistill.search and beir, as FAISS writes it: Flat (exact), IVF256,Flat, PQ48, HNSW32 …
    c.index_effort = ""  # of its search: nprobe=16, efSearch=128 …; empty: FAISS's own
    c.index_by = "student"  # whose vectors the run's own index holds: student, or teacher (of a student in its space, whose queries ask it)
    return c


def apply_variant(c: ConfigDict, variant: str, variants: dict[str, dict[str, object]], file: str) -> ConfigDict:
    """The config with the changes of one of its file's variants. Raises UserError for a variant that the file has not."""
    if variant not in variants:
        raise UserError(f"{file} has no variant {variant!r}; it has {', '.join(name for name in variants if name)}")
    c.update_from_flattened_dict(variants[variant])
    return c
