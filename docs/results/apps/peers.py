"""The servers of others that are measured beside Ringroad, in a virtual environment that is made by the first call."""

import os
import subprocess
import sys

PACKAGES = ["gunicorn==27.0.1", "uvicorn[standard]==0.54.0", "granian==2.8.7"]


def environment(folder):
    """The folder of the environment. It is made with pip if it is not there."""
    folder = os.path.abspath(folder)
    done = os.path.join(folder, "packages")
    wanted = "\n".join(PACKAGES)
    if os.path.exists(done):
        with open(done) as file:
            if file.read() == wanted:
                return folder
    programs = [os.path.join(folder, "bin", name) for name in ("gunicorn", "uvicorn", "granian")]
    if os.path.isdir(folder) and all(os.path.exists(program) for program in programs):
        # Made by hand: it is used as it is.
        return folder
    print("making %s: %s" % (folder, ", ".join(PACKAGES)), file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = os.path.join(folder, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
    with open(done, "w") as file:
        file.write(wanted)
    return folder


def versions(folder):
    """What runs: the interpreter, and the packages with their versions."""
    python = os.path.join(folder, "bin", "python")
    listed = subprocess.run([python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"],
                            capture_output=True, text=True).stdout.split()
    names = ("gunicorn", "uvicorn", "granian", "uvloop", "httptools")
    interpreter = subprocess.run([python, "--version"], capture_output=True, text=True).stdout.strip()
    return [interpreter] + [line for line in listed if line.split("==")[0].lower() in names]


def machine():
    """Where it runs."""
    with open("/proc/cpuinfo") as file:
        models = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return {"kernel": os.uname().release, "cpus": os.cpu_count(), "model": models[0] if models else ""}
