package gguf

import (
	"fmt"

	"omni-engine/internal/tensor"
)

// dtype translates the format's tensor type id; the error names a type that exists but is not supported.
func dtype(id uint32) (tensor.DType, error) {
	switch id {
	case 0:
		return tensor.F32, nil
	case 1:
		return tensor.F16, nil
	case 2:
		return tensor.Q4_0, nil
	case 3:
		return tensor.Q4_1, nil
	case 6:
		return tensor.Q5_0, nil
	case 7:
		return tensor.Q5_1, nil
	case 8:
		return tensor.Q8_0, nil
	case 10:
		return tensor.Q2_K, nil
	case 11:
		return tensor.Q3_K, nil
	case 12:
		return tensor.Q4_K, nil
	case 13:
		return tensor.Q5_K, nil
	case 14:
		return tensor.Q6_K, nil
	case 15:
		return tensor.Q8_K, nil
	case 24:
		return tensor.I8, nil
	case 25:
		return tensor.I16, nil
	case 26:
		return tensor.I32, nil
	case 27:
		return tensor.I64, nil
	case 28:
		return tensor.F64, nil
	case 30:
		return tensor.BF16, nil
	}
	if name := unsupportedName(id); name != "" {
		return tensor.Invalid, fmt.Errorf("element type %s is not supported", name)
	}
	return tensor.Invalid, fmt.Errorf("unknown element type %d", id)
}

func unsupportedName(id uint32) string {
	switch id {
	case 4, 5:
		return "Q4_2/Q4_3 (removed from the format)"
	case 9:
		return "Q8_1"
	case 16:
		return "IQ2_XXS"
	case 17:
		return "IQ2_XS"
	case 18:
		return "IQ3_XXS"
	case 19:
		return "IQ1_S"
	case 20:
		return "IQ4_NL"
	case 21:
		return "IQ3_S"
	case 22:
		return "IQ2_S"
	case 23:
		return "IQ4_XS"
	case 29:
		return "IQ1_M"
	case 31, 32, 33:
		return "Q4_0 repacked (removed from the format)"
	case 34:
		return "TQ1_0"
	case 35:
		return "TQ2_0"
	case 39:
		return "MXFP4"
	case 40:
		return "NVFP4"
	}
	return ""
}
