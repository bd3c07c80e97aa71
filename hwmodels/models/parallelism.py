"""How GPUs share a model: tensor parallel, and for experts data and expert parallel."""

from dataclasses import dataclass
from typing import Final

from hwmodels.errors import HardwareError
from hwmodels.models.llm_shape import LlmShape

# vLLM refuses others (Fp8MoEMethod.create_weights, model_executor/layers/quantization/fp8.py).
_BLOCK_VALUES: Final = 128


@dataclass(frozen=True, slots=True)
class Parallelism:
    """``tp`` GPUs per engine; ``dp`` engines share the experts of a mixture, and each has the rest itself.

    ``expert_parallel``: a GPU has whole experts, one part in tp x dp of them; else it has that part of every
    expert (vLLM's FusedMoEParallelConfig: without expert parallelism tp is flattened over dp).
    """

    tp: int
    dp: int = 1
    expert_parallel: bool = False

    @property
    def gpus(self) -> int:
        """GPUs of all engines together."""
        return self.tp * self.dp

    @property
    def expert_tp(self) -> int:
        """Parts that each expert is cut into."""
        return 1 if self.expert_parallel else self.gpus

    @property
    def expert_ep(self) -> int:
        """Parts that the set of experts is cut into."""
        return self.gpus if self.expert_parallel else 1

    def check(self, llm: LlmShape) -> None:
        """HardwareError if ``llm`` cannot be shared like this."""
        llm.require_tp(self.tp)
        if llm.experts is None:
            if self.dp > 1 or self.expert_parallel:
                raise HardwareError(
                    f"{llm.name} has no experts to share between engines: write "
                    "engine.data_parallel_size=1 engine.enable_expert_parallel=false, or more replicas"
                )
            return
        width = llm.experts.width // self.expert_tp
        if llm.formats.experts == "fp8_block" and width % _BLOCK_VALUES:
            raise HardwareError(
                f"experts of {llm.name} cut over {self.expert_tp} GPUs are {width} values wide, and vLLM "
                f"cuts fp8_block between blocks of {_BLOCK_VALUES} only: write "
                "engine.enable_expert_parallel=true, fewer GPUs, or model.precision=fp8"
            )
        if llm.experts.count % self.expert_ep or llm.experts.width % self.expert_tp:
            raise HardwareError(
                f"{self.gpus} GPUs do not divide the {llm.experts.count} experts of width "
                f"{llm.experts.width} of {llm.name}: write a power of two"
            )
