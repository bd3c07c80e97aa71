#!/bin/sh
# make run: the real Azure conversation trace when it is found, else the synthetic one that resembles it.
set -eu
bin=$1
out=$2
trace=$("$bin/python" -m scripts.pick_trace)
if [ "$trace" = azure_conv ]; then
    echo "trace: the real Azure conversation trace (trace=azure_conv)"
else
    echo "trace: SYNTHETIC (trace=azure_conv_like); for the real one set SERVETWIN_TRACES or fill data/, see docs/tutorials/FIRST_RUN.md"
fi
"$bin/servetwin" simulate system=vllm cluster=a100_x8 model=llama3_8b trace="$trace" journal=true \
    overwrite=true out="$out"
"$bin/servetwin" replay "$out"
