"""What `nvidia-smi` says on several machines, in the form of its XML.

The tags are those of drivers 440 (`clocks_throttle_reasons`) and 535 (`clocks_event_reasons`). The
published machine's values come from the table on the published page; the others vary them.
"""

from __future__ import annotations

PUBLISHED_TABLE = """\
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 440.64.00    Driver Version: 440.64.00    CUDA Version: 10.2     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|===============================+======================+======================|
|   0  Tesla V100-SXM2...  On   | 00000000:00:07.0 Off |                    0 |
| N/A   32C    P0    41W / 300W |      0MiB / 32510MiB |      0%      Default |
+-------------------------------+----------------------+----------------------+
"""
TOPOLOGY = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-47\nGPU1\tNV2\t X \t0-47\n"
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\n"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
NO_DEVICES = "No devices were found\n"
REASONS = (
    "gpu_idle applications_clocks_setting sw_power_cap hw_slowdown hw_thermal_slowdown"
    " hw_power_brake_slowdown sync_boost sw_thermal_slowdown display_clocks_setting"
).split()


def gpu(
    index: int = 0,
    *,
    name: str = "Tesla V100-SXM2-32GB",
    total: str = "32510 MiB",
    used: str = "0 MiB",
    utilisation: str = "0 %",
    processes: tuple[tuple[int, str], ...] = (),
    mig: str = "N/A",
    compute_mode: str = "Default",
    active: tuple[str, ...] = ("gpu_idle",),
    reasons: str = "throttle",
) -> str:
    flags = "".join(
        f"<clocks_{reasons}_reason_{reason}>{'Active' if reason in active else 'Not Active'}"
        f"</clocks_{reasons}_reason_{reason}>\n"
        for reason in REASONS
    )
    running = "".join(
        f"<process_info><pid>{pid}</pid><type>C</type><process_name>{what}</process_name>"
        f"<used_memory>{used}</used_memory></process_info>\n"
        for pid, what in processes
    )
    return f"""<gpu id="00000000:00:{index + 7:02X}.0">
    <product_name>{name}</product_name>
    <persistence_mode>Enabled</persistence_mode>
    <mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode>
    <fan_speed>N/A</fan_speed>
    <performance_state>P0</performance_state>
    <clocks_{reasons}_reasons>{flags}</clocks_{reasons}_reasons>
    <fb_memory_usage><total>{total}</total><used>{used}</used><free>1 MiB</free></fb_memory_usage>
    <compute_mode>{compute_mode}</compute_mode>
    <utilization><gpu_util>{utilisation}</gpu_util><memory_util>0 %</memory_util></utilization>
    <clocks><graphics_clock>135 MHz</graphics_clock><sm_clock>135 MHz</sm_clock>
      <mem_clock>877 MHz</mem_clock></clocks>
    <applications_clocks><graphics_clock>1290 MHz</graphics_clock><mem_clock>877 MHz</mem_clock>
    </applications_clocks>
    <max_clocks><graphics_clock>1530 MHz</graphics_clock><sm_clock>1530 MHz</sm_clock></max_clocks>
    <processes>{running}</processes>
  </gpu>
"""


def xml(*gpus: str, driver: str = "440.64.00", cuda: str = "10.2") -> str:
    return f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v10.dtd">
<nvidia_smi_log>
  <timestamp>Mon Jun  1 12:00:00 2026</timestamp>
  <driver_version>{driver}</driver_version>
  <cuda_version>{cuda}</cuda_version>
  <attached_gpus>{len(gpus)}</attached_gpus>
  {"".join(gpus)}
</nvidia_smi_log>
"""


PUBLISHED = xml(*(gpu(index) for index in range(4)))
NEWER_DRIVER = xml(
    *(gpu(i, total="32768 MiB", used="4 MiB", reasons="event") for i in range(4)),
    driver="535.129.03",
    cuda="12.2",
)
OTHER_CARD = xml(
    *(gpu(i, name="NVIDIA A10G", total="23028 MiB", reasons="event") for i in range(2)),
    driver="535.129.03",
    cuda="12.2",
)
BUSY = xml(
    gpu(0, used="30120 MiB", utilisation="98 %", processes=((4711, "python3"),)),
    gpu(1, used="812 MiB"),
    gpu(2, utilisation="3 %"),
    gpu(3, active=("hw_slowdown", "hw_thermal_slowdown")),
)
MIG = xml(
    *(
        gpu(i, name="NVIDIA A100-SXM4-40GB", total="40960 MiB", used="249 MiB", utilisation="N/A",
            mig="Enabled", reasons="event")
        for i in range(4)
    ),
    driver="535.104.05",
    cuda="12.2",
)  # fmt: skip
OLD_DRIVER = xml(*(gpu(i) for i in range(4)), driver="418.87.01", cuda="10.1")
