"""What `nvidia-smi -q -d UTILIZATION` prints, as driver 580.159.04 did of an NVIDIA H200 on 2026-11-27.

No machine of these tests has a GPU: stand-ins for nvidia-smi print this.
"""

from __future__ import annotations

HEAD = """
==============NVSMI LOG==============

Timestamp                                              : Fri Nov 27 02:02:05 2026
Driver Version                                         : 580.159.04
CUDA Version                                           : 13.0

Attached GPUs                                          : {count}
"""
GPU = """GPU 00000000:00:{bus:02x}.0
    Utilization
        {name}                                            : {now}
        Memory                                         : 0 %
        Encoder                                        : 0 %
        Decoder                                        : 0 %
        JPEG                                           : 0 %
        OFA                                            : 0 %
    GPU Utilization Samples
        Duration                                       : {seconds}
        Number of Samples                              : 71
        Max                                            : 97 %
        Min                                            : 0 %
        Avg                                            : {mean}
    Memory Utilization Samples
        Duration                                       : 14.00 sec
        Number of Samples                              : 71
        Max                                            : 25 %
        Min                                            : 0 %
        Avg                                            : 44 %
    ENC Utilization Samples
        Duration                                       : 14.00 sec
        Number of Samples                              : 71
        Max                                            : 0 %
        Min                                            : 0 %
        Avg                                            : 0 %

"""


def utilization(*gpus: tuple[int | str, int | str], seconds: str = "14.00 sec", name: str = "GPU") -> str:
    """Return what it prints of GPUs with these percentages: of this moment, and the mean of the last 14 seconds."""
    words = {"seconds": seconds, "name": name}
    said = [
        GPU.format(bus=number + 6, now=percent(now), mean=percent(mean), **words)
        for number, (now, mean) in enumerate(gpus)
    ]
    return HEAD.format(count=len(gpus)) + "".join(said)


def percent(value: int | str) -> str:
    """Return a figure as the driver writes it, and a word as it is."""
    return value if isinstance(value, str) else f"{value} %"
