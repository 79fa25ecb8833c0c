"""Children by subprocess, os.fork and os.posix_spawn, with large memory on both sides."""

import os
import subprocess
import sys

block = bytearray(32 << 20)
child = "import sys; b = bytearray(16 << 20); d = sys.stdin.buffer.read(); print(len(d), sum(d[:1000]), sum(b))"
for i in range(4):
    block[:] = bytes([i]) * len(block)
    done = subprocess.run([sys.executable, "-c", child], input=block, capture_output=True, check=True)
    print(done.stdout.decode().strip())
for i in range(4):
    pid = os.fork()
    if pid == 0:
        mine = bytearray(24 << 20)
        block[5] = 200
        os._exit(0 if sum(mine) == 0 and block[5] == 200 and block[6] == 3 else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), block[5])
pid = os.posix_spawn(sys.executable, [sys.executable, "-c", "print(len(bytearray(9 << 20)))"], os.environ)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
