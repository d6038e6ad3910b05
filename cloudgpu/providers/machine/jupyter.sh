#!/bin/sh
# Runs a module of Jupyter, after the first start of the machine has installed it.
place=/opt/cloudgpu/jupyter
until [ -e "$place/ready" ]; do
  if [ -e "$HOME/.cloudgpu/jupyter.failed" ]; then
    echo "Jupyter could not be installed; ~/.cloudgpu/jupyter.log has the reason" >&2
    exit 1
  fi
  sleep 1
done
PATH="$place/bin:/usr/local/cuda/bin:$PATH"
export PATH
exec "$place/bin/python" -m "$@"
