from warm_integrations.core.masking import *
