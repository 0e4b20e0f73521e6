"""Layers of the paper's models.

The paper has times and sizes of whole models only. The shares of their layers are those measured on
an H200, at the paper's batch sizes in fp32: the set `h200`, scaled to the paper's totals.
"""

from __future__ import annotations

from headway.domain.layers import Layer

LAYERS = {
    "vgg16": (
        Layer(436_124, 465_415, 7_168, 205_520_896, name="0 Conv2d"),
        Layer(1_824_095, 4_640_847, 147_712, 51_380_224, name="2 Conv2d"),
        Layer(841_332, 1_348_131, 295_424, 102_760_448, name="5 Conv2d"),
        Layer(1_593_505, 2_354_421, 590_336, 25_690_112, name="7 Conv2d"),
        Layer(764_685, 1_288_291, 1_180_672, 51_380_224, name="10 Conv2d"),
        Layer(1_638_491, 1_555_904, 2_360_320, 51_380_224, name="12 Conv2d"),
        Layer(1_683_822, 1_701_860, 2_360_320, 12_845_056, name="14 Conv2d"),
        Layer(998_595, 1_140_262, 4_720_640, 25_690_112, name="17 Conv2d"),
        Layer(2_188_098, 1_683_897, 9_439_232, 25_690_112, name="19 Conv2d"),
        Layer(2_211_868, 1_766_198, 9_439_232, 6_422_528, name="21 Conv2d"),
        Layer(664_127, 694_533, 9_439_232, 6_422_528, name="24 Conv2d"),
        Layer(666_762, 694_438, 9_439_232, 6_422_528, name="26 Conv2d"),
        Layer(679_782, 724_477, 9_439_232, 1_605_632, name="28 Conv2d"),
        Layer(385_724, 386_751, 411_058_176, 262_144, name="32 Linear"),
        Layer(114_804, 142_062, 67_125_248, 262_144, name="35 Linear"),
        Layer(101_242, 59_409, 16_388_000, 64_000, name="38 Linear"),
    ),
    "resnet50": (
        Layer(190_191, 222_694, 37_632, 51_380_224, name="0 Conv2d"),
        Layer(213_000, 512_301, 512, 12_845_056, name="1 BatchNorm2d"),
        Layer(551_553, 1_297_529, 300_032, 51_380_224, name="4 Bottleneck"),
        Layer(462_469, 1_152_154, 281_600, 51_380_224, name="5 Bottleneck"),
        Layer(464_388, 1_158_662, 281_600, 51_380_224, name="6 Bottleneck"),
        Layer(584_119, 2_008_290, 1_517_568, 25_690_112, name="7 Bottleneck"),
        Layer(365_391, 818_980, 1_120_256, 25_690_112, name="8 Bottleneck"),
        Layer(362_758, 819_521, 1_120_256, 25_690_112, name="9 Bottleneck"),
        Layer(364_518, 817_866, 1_120_256, 25_690_112, name="10 Bottleneck"),
        Layer(549_808, 1_371_555, 6_049_792, 12_845_056, name="11 Bottleneck"),
        Layer(360_236, 629_320, 4_468_736, 12_845_056, name="12 Bottleneck"),
        Layer(360_664, 628_365, 4_468_736, 12_845_056, name="13 Bottleneck"),
        Layer(358_903, 629_669, 4_468_736, 12_845_056, name="14 Bottleneck"),
        Layer(358_856, 627_730, 4_468_736, 12_845_056, name="15 Bottleneck"),
        Layer(359_522, 627_124, 4_468_736, 12_845_056, name="16 Bottleneck"),
        Layer(613_734, 1_103_238, 24_158_208, 6_422_528, name="17 Bottleneck"),
        Layer(433_107, 600_026, 17_850_368, 6_422_528, name="18 Bottleneck"),
        Layer(448_495, 611_132, 17_850_368, 131_072, name="19 Bottleneck"),
        Layer(92_192, 48_708, 8_196_000, 64_000, name="22 Linear"),
    ),
    "inception-v3": (
        Layer(270_974, 653_872, 3_712, 45_467_648, name="trunk.0 Sequential"),
        Layer(445_239, 1_224_729, 37_120, 44_255_232, name="trunk.1 Sequential"),
        Layer(721_938, 1_940_463, 74_240, 21_827_584, name="trunk.2 Sequential"),
        Layer(140_628, 305_178, 21_120, 27_284_480, name="trunk.4 Sequential"),
        Layer(786_136, 1_505_170, 554_496, 15_052_800, name="trunk.5 Sequential"),
        Layer(681_859, 1_411_429, 1_023_616, 20_070_400, name="trunk.7 Beside"),
        Layer(724_758, 1_514_559, 1_109_888, 22_579_200, name="trunk.8 Beside"),
        Layer(728_346, 1_596_487, 1_140_608, 22_579_200, name="trunk.9 Beside"),
        Layer(661_626, 1_416_165, 4_613_120, 14_204_928, name="trunk.10 Beside"),
        Layer(954_920, 1_915_837, 5_189_632, 14_204_928, name="trunk.11 Beside"),
        Layer(1_219_978, 2_184_386, 6_764_032, 14_204_928, name="trunk.12 Beside"),
        Layer(1_221_302, 2_179_589, 6_764_032, 14_204_928, name="trunk.13 Beside"),
        Layer(1_078_203, 2_472_335, 8_567_808, 14_204_928, name="trunk.14 Beside"),
        Layer(584_305, 1_275_306, 6_793_216, 5_242_880, name="top.0 Beside"),
        Layer(791_733, 1_211_883, 20_178_432, 8_388_608, name="top.1 Beside"),
        Layer(945_290, 1_390_390, 24_307_200, 131_072, name="top.2 Beside"),
        Layer(83_921, 33_585, 8_196_000, 64_000, name="top.6 Linear"),
        Layer(253_692, 414_157, 13_306_784, 64_000, name="auxiliary Sequential"),
    ),
    "lstm-ptb": (
        Layer(28_615, 151_726, 60_000_000, 13_440_000, name="embedding Embedding"),
        Layer(5_591_174, 10_698_380, 144_096_000, 13_440_000, name="layers LSTM"),
        Layer(1_640_979, 2_923_366, 60_040_000, 89_600_000, name="head Linear"),
    ),
}
"""The layers of the first profile of each model in the set `h200`."""
