"""Physical memory of a CUDA device through its driver's virtual memory management."""

import importlib
from typing import Any

import torch

from nightjar_kernels.driver_calls import call
from nightjar_kernels.physical_pool.errors import MemoryCallError


class CudaMemory:
    """Granules are driver allocations; addresses are reserved in the process's unified address space.

    No call here waits for the device, and none needs a current context: a helper thread may make them while
    another launches kernels.
    """

    def __init__(self, device_index: int) -> None:
        """MemoryCallError without virtual memory management; ImportError without cuda-bindings."""
        torch.cuda.init()
        # Imported by name: the package exists on GPU hosts only, and type checkers run elsewhere too.
        self._driver: Any = importlib.import_module("cuda.bindings.driver")
        self._device_index = device_index
        self._require_virtual_memory()
        self._property = self._allocation_property()
        self._access = self._driver.CUmemAccessDesc()
        self._access.location = self._property.location
        self._access.flags = self._driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        minimum = self._driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        self._granularity = int(self._call("cuMemGetAllocationGranularity", self._property, minimum))

    @property
    def granularity(self) -> int:
        return self._granularity

    def create(self, size: int) -> int:
        return int(self._call("cuMemCreate", size, self._property, 0))

    def release(self, handle: int) -> None:
        self._call("cuMemRelease", handle)

    def reserve(self, size: int) -> int:
        return int(self._call("cuMemAddressReserve", size, 0, 0, 0))

    def free(self, address: int, size: int) -> None:
        self._call("cuMemAddressFree", address, size)

    def map(self, address: int, size: int, handle: int) -> None:
        self._call("cuMemMap", address, size, 0, handle, 0)

    def allow_access(self, address: int, size: int) -> None:
        self._call("cuMemSetAccess", address, size, [self._access], 1)

    def unmap(self, address: int, size: int) -> None:
        self._call("cuMemUnmap", address, size)

    def tensor(self, address: int, size: int) -> torch.Tensor:
        # With an explicit index torch takes the device as given and does not ask the driver about the address:
        # there may be nothing behind it yet.
        return torch.as_tensor(_Addresses(address, size), device=f"cuda:{self._device_index}")

    def _allocation_property(self) -> Any:
        driver = self._driver
        prop = driver.CUmemAllocationProp()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        prop.location.id = self._device_index
        return prop

    def _require_virtual_memory(self) -> None:
        attribute = self._driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        device = self._call("cuDeviceGet", self._device_index)
        if not self._call("cuDeviceGetAttribute", attribute, device):
            raise MemoryCallError(
                "a device with virtual memory management is required, found"
                f" {torch.cuda.get_device_name(self._device_index)} without it"
            )

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return call(self._driver, name, *arguments)
        except MemoryCallError as error:
            free, total = torch.cuda.mem_get_info(self._device_index)
            raise MemoryCallError(f"{error}; device {self._device_index} has {free} of {total} bytes free") from error


class _Addresses:
    """Device memory in the form that torch wraps without copying."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
