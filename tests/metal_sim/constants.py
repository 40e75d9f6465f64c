"""Metal's constants that the backend uses, with Apple's values; a test compares them with those of PyObjC."""

from __future__ import annotations

CONSTANTS = {
    "MTLBarrierScopeBuffers": 1,
    "MTLBindingAccessReadOnly": 0,
    "MTLBindingAccessReadWrite": 1,
    "MTLBindingTypeBuffer": 0,
    "MTLBindingTypeThreadgroupMemory": 1,
    "MTLCaptureDestinationGPUTraceDocument": 2,
    "MTLCommandBufferStatusNotEnqueued": 0,
    "MTLCommandBufferStatusCommitted": 2,
    "MTLCommandBufferStatusCompleted": 4,
    "MTLCommandBufferStatusError": 5,
    "MTLCounterSamplingPointAtStageBoundary": 0,
    "MTLCounterSamplingPointAtDispatchBoundary": 2,
    "MTLDataTypeNone": 0,
    "MTLDataTypeStruct": 1,
    "MTLDataTypeArray": 2,
    "MTLDataTypePointer": 60,
    "MTLDispatchTypeSerial": 0,
    "MTLDispatchTypeConcurrent": 1,
    "MTLGPUFamilyApple3": 1003,
    "MTLGPUFamilyApple7": 1007,
    "MTLGPUFamilyMac2": 2002,
    "MTLIndirectCommandTypeConcurrentDispatch": 32,
    "MTLIndirectCommandTypeConcurrentDispatchThreads": 64,
    "MTLPipelineOptionBindingInfo": 1,
    "MTLPipelineOptionBufferTypeInfo": 2,
    "MTLResourceStorageModeShared": 0,
    "MTLResourceUsageRead": 1,
    "MTLResourceUsageWrite": 2,
    "MTLStorageModeShared": 0,
}

SCALARS = {
    "float32": ("Float", 3),
    "float16": ("Half", 16),
    "int32": ("Int", 29),
    "uint32": ("UInt", 33),
    "int16": ("Short", 37),
    "uint16": ("UShort", 41),
    "int8": ("Char", 45),
    "uint8": ("UChar", 49),
    "bool": ("Bool", 53),
    "int64": ("Long", 81),
    "uint64": ("ULong", 85),
    "bfloat16": ("BFloat", 121),
}
"""NumPy's names of scalars: Metal's name of the data type, and its value; vectors follow it."""

for _name, _value in SCALARS.values():
    for _lanes in (1, 2, 3, 4):
        CONSTANTS[f"MTLDataType{_name}{_lanes if _lanes > 1 else ''}"] = _value + _lanes - 1

STRINGS = {"MTLCommonCounterSetTimestamp": "timestamp"}
