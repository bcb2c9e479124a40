"""The paper's tables and figures, one module each: a function `run(study)` that measures what the paper measured."""
