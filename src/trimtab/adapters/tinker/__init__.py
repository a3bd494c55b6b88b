"""Tinker-style loops: what `forward_backward` took and returned, as columns of a batch.

    result = training_client.forward_backward(data, "importance_sampling").result()
    observe(run, data, result, reward=rewards, group=groups)
    run.flush(step, metrics)

`data` are Datum records, as tinker and its cookbook build them. The module imports neither: any client whose
records have the same fields will do (`docs/how-to/tinker.md`).
"""

from trimtab.adapters.tinker.datums import datum_columns
from trimtab.adapters.tinker.forward_backward import observe, trainer_logprobs

__all__ = ["datum_columns", "observe", "trainer_logprobs"]
