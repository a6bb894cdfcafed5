from warm_integrations.core.words import *
