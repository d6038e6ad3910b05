"""An MPI program without a compiler: Open MPI's own library, called by ctypes. A token goes around all ranks."""

from __future__ import annotations

import ctypes
import os
import sys

ANY = ctypes.c_void_p(0)  # MPI_STATUS_IGNORE
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    """One of Open MPI's own objects, as its functions take it."""
    return ctypes.byref(ctypes.c_char.in_dll(mpi, name))


def main():
    world, number, plus = handle("ompi_mpi_comm_world"), handle("ompi_mpi_int"), handle("ompi_mpi_op_sum")
    rank, size, token, total = (ctypes.c_int() for _ in range(4))
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))
    mpi.MPI_Comm_size(world, ctypes.byref(size))
    me, ranks = rank.value, size.value
    if me:
        mpi.MPI_Recv(ctypes.byref(token), 1, number, me - 1, 7, world, ANY)
    token.value += me
    mpi.MPI_Send(ctypes.byref(token), 1, number, (me + 1) % ranks, 7, world)
    if not me:
        mpi.MPI_Recv(ctypes.byref(token), 1, number, ranks - 1, 7, world, ANY)
    mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, number, plus, world)
    sys.stdout.write(f"rank {me} of {ranks} on {os.environ['SLURMD_NODENAME']}, {os.environ['CLOUDGPU_ENGINE']}\n")
    if not me:
        sys.stdout.write(f"the token came back with {token.value}, the sum is {total.value}\n")
    sys.stdout.flush()
    mpi.MPI_Finalize()


main()
