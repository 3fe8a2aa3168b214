"""The methods by name: one file per paper, one line here. Each names the stages of a run with its config."""

from jdistill.methods import bilstm_sra, classify, crd, d2llm, distilface, hpd, ibkd, mse, simtde, supervised

METHODS = {
    "simtde": simtde.stages,
    "ibkd": ibkd.stages,
    "ckd": ibkd.stages,  # with both betas 0, as configs/ibkd.py:ckd sets them
    "mse": mse.stages,
    "crd": crd.stages,
    "hpd": hpd.stages,
    "supervised": supervised.stages,
    "distilface": distilface.stages,
    "bilstm_sra": bilstm_sra.stages,
    "classify": classify.stages,
    "d2llm": d2llm.stages,
}
