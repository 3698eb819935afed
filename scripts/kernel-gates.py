#!/usr/bin/env python3
"""Prints one line a kernel and architecture: registers, spilled bytes, static shared memory, and how many of the instructions there are
that the kernels are written for. scripts/kernels.sh writes it to kernels/gpu/testdata/gates.tsv, whose limits a Go test holds.

usage: kernel-gates.py NVDISASM FOLDER ARCH...   (FOLDER has ARCH.cubin and ARCH.log, ptxas -v)
"""

import collections
import re
import subprocess
import sys

COUNTED = ("HMMA", "LDGSTS", "LDSM", "IDP", "STL", "LDL")
# sm_100 and later name some of them differently.
ALIASES = {"QMMA": "HMMA", "IDP4A": "IDP"}


def resources(log):
    """registers, spilled bytes (stores and loads) and static shared memory by kernel"""
    out, kernel, spills = {}, None, 0
    for line in open(log):
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            kernel = m.group(1)
        elif m := re.search(r"bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spills = int(m.group(1)) + int(m.group(2))
        elif (m := re.search(r"Used (\d+) registers", line)) and kernel:
            shared = re.search(r"(\d+) bytes smem", line)
            out[kernel] = (int(m.group(1)), spills, int(shared.group(1)) if shared else 0)
            kernel = None
    return out


def instructions(nvdisasm, cubin):
    counts, kernel = collections.defaultdict(collections.Counter), None
    text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        if m := re.match(r"\s*\.section\s+\.text\.(\w+)", line):
            kernel = m.group(1)
        elif kernel and (m := re.search(r"\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*)", line)):
            name = ALIASES.get(m.group(1), m.group(1))
            counts[kernel]["all"] += 1
            counts[kernel][name] += 1
    return counts


def main():
    nvdisasm, folder, archs = sys.argv[1], sys.argv[2], sys.argv[3:]
    print("\t".join(("kernel", "arch", "registers", "spilled", "shared", "instructions") + COUNTED))
    for arch in archs:
        counts = instructions(nvdisasm, f"{folder}/{arch}.cubin")
        for kernel, (regs, spilled, shared) in sorted(resources(f"{folder}/{arch}.log").items()):
            c = counts[kernel]
            print("\t".join(map(str, [kernel, arch, regs, spilled, shared, c["all"]] + [c[i] for i in COUNTED])))


main()
